package escrowhttp

// Bound makes less of an answer too much.
func (c *Client) Bound(bytes int64) { c.most = bytes }
