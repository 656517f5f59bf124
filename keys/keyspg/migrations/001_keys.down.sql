DROP TABLE {{schema}}.key_secrets;
DROP TABLE {{schema}}.keys;
DROP TABLE {{schema}}.teams;
