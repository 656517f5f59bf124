DROP TABLE {{schema}}.key_declarations;
