package prove

import "context"

func (c *client) rates(ctx context.Context) {}
