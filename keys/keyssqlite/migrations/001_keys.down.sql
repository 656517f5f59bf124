DROP TABLE key_secrets;
DROP TABLE keys;
DROP TABLE teams;
