ALTER TABLE {{schema}}.event_asides DROP COLUMN last_reason;
ALTER TABLE {{schema}}.event_log DROP COLUMN generation;
