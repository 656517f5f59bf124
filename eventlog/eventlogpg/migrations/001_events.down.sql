DROP TABLE {{schema}}.event_asides;
DROP TABLE {{schema}}.event_consumers;
DROP TABLE {{schema}}.event_log;
DROP TABLE {{schema}}.event_streams;
DROP TABLE {{schema}}.events;
