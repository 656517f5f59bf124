DROP TABLE {{schema}}.leases;
DROP FUNCTION {{schema}}.leases_are_kept();
DROP TABLE {{schema}}.lease_origin;
