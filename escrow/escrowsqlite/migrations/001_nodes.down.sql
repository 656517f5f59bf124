DROP TABLE escrow_nodes;
