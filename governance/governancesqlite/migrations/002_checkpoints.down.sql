ALTER TABLE governance_meta DROP COLUMN pruned_cost_microusd;
ALTER TABLE governance_meta DROP COLUMN pruned_tokens;
ALTER TABLE governance_meta DROP COLUMN pruned_permits;
DROP TABLE governance_checkpoints;
