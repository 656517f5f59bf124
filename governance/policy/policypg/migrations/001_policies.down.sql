DROP TABLE {{schema}}.policy_state;
DROP TABLE {{schema}}.policy_documents;
