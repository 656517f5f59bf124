ALTER TABLE tallystick_event_asides DROP COLUMN last_reason;
ALTER TABLE tallystick_event_log DROP COLUMN generation;
