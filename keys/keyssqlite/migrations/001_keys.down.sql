DROP TABLE tallystick_key_secrets;
DROP TABLE tallystick_keys;
DROP TABLE tallystick_teams;
