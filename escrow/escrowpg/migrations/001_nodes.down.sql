DROP TABLE {{schema}}.escrow_nodes;
