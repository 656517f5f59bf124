DROP TRIGGER leases_are_kept;
DROP TABLE leases;
DROP TABLE lease_origin;
