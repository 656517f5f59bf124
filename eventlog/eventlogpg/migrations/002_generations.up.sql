-- What the generations of checkpoints go on from, where one is made anew: none is given twice. And how an event that was
-- set aside failed last, beside how it failed first. In event_consumers a bound of -1 says that the checkpoint is closed.
ALTER TABLE {{schema}}.event_log ADD COLUMN generation bigint NOT NULL DEFAULT 0;
ALTER TABLE {{schema}}.event_asides ADD COLUMN last_reason text;
