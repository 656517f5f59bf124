DROP TABLE tallystick_event_asides;
DROP TABLE tallystick_event_consumers;
DROP TABLE tallystick_event_log;
DROP TABLE tallystick_event_streams;
DROP TABLE tallystick_events;
