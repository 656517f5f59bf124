package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ory/dockertest/v3"
	dc "github.com/ory/dockertest/v3/docker"
)

// This is the only file that knows dockertest.

const (
	defaultImage = "postgres:16-alpine"
	pingWait     = 3 * time.Second
	// A pull that stops moving, as it does without a registry, is given up soon; one that moves has longer.
	pullStill = 10 * time.Second
	pullWait  = 3 * time.Minute
	insideDB  = dc.Port("5432/tcp")
)

type container struct {
	pool  *dockertest.Pool
	id    string
	image string
}

func newDocker(ctx context.Context, l launch) (engine, *guard, error) {
	pool, err := dockerPool(ctx)
	if err != nil {
		return nil, nil, err
	}
	image := os.Getenv(EnvImage)
	if image == "" {
		image = defaultImage
	}
	repository, tag := dc.ParseRepositoryTag(image)
	if tag == "" {
		tag = "latest"
	}
	if err := present(ctx, pool, repository, tag); err != nil {
		return nil, nil, err
	}
	name := "tallystick-pg-" + random()
	g, err := watch(Docker, name)
	if err != nil {
		return nil, nil, err
	}
	res, err := pool.RunWithOptions(&dockertest.RunOptions{
		Name: name, Repository: repository, Tag: tag,
		Env:          []string{"POSTGRES_PASSWORD=" + l.password, "POSTGRES_HOST_AUTH_METHOD=password", "POSTGRES_INITDB_ARGS=--no-sync --locale=C --encoding=UTF8"},
		Cmd:          append([]string{"postgres"}, l.flags()...),
		ExposedPorts: []string{string(insideDB)},
		// The port is fixed and not the engine's choice: it must be the same after a restart.
		PortBindings: map[dc.Port][]dc.PortBinding{insideDB: {{HostIP: "127.0.0.1", HostPort: strconv.Itoa(l.port)}}},
	}, func(h *dc.HostConfig) { h.PublishAllPorts = false })
	if err != nil {
		_ = g.release()
		return nil, nil, fmt.Errorf("the container does not start: %w", err)
	}
	return &container{pool: pool, id: res.Container.ID, image: image}, g, nil
}

func dockerPool(ctx context.Context) (*dockertest.Pool, error) {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotHere, err)
	}
	ping, cancel := context.WithTimeout(ctx, pingWait)
	defer cancel()
	if err := pool.Client.PingWithContext(ping); err != nil {
		return nil, fmt.Errorf("%w: no Docker daemon answers", errNotHere)
	}
	return pool, nil
}

func present(ctx context.Context, pool *dockertest.Pool, repository, tag string) error {
	if _, err := pool.Client.InspectImage(repository + ":" + tag); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pullWait)
	defer cancel()
	err := pool.Client.PullImage(dc.PullImageOptions{Repository: repository, Tag: tag, Context: ctx, InactivityTimeout: pullStill}, dc.AuthConfiguration{})
	if err != nil {
		return fmt.Errorf("%w: image %s:%s is not here and cannot be pulled", errNotHere, repository, tag)
	}
	return nil
}

// start is called once right after the container was made, when it runs already.
func (c *container) start(ctx context.Context) error {
	err := c.pool.Client.StartContainerWithContext(c.id, nil, ctx)
	var already *dc.ContainerAlreadyRunning
	if errors.As(err, &already) {
		return nil
	}
	return err
}

func (c *container) stop(ctx context.Context, m Mode) error {
	sig := dc.SIGINT
	if m == Immediate {
		sig = dc.SIGQUIT
	}
	return c.end(ctx, sig)
}

func (c *container) kill(ctx context.Context) error { return c.end(ctx, dc.SIGKILL) }

func (c *container) end(ctx context.Context, sig dc.Signal) error {
	err := c.pool.Client.KillContainer(dc.KillContainerOptions{ID: c.id, Signal: sig, Context: ctx})
	var gone *dc.ContainerNotRunning
	if errors.As(err, &gone) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = c.pool.Client.WaitContainerWithContext(c.id, ctx)
	return err
}

func (c *container) pause(_ context.Context, on bool) error {
	if on {
		return c.pool.Client.PauseContainer(c.id)
	}
	return c.pool.Client.UnpauseContainer(c.id)
}

func (c *container) died() bool {
	info, err := c.pool.Client.InspectContainer(c.id)
	return err == nil && !info.State.Running
}

func (c *container) describe() string { return "image=" + c.image }

func (c *container) logs() string {
	var b bytes.Buffer
	_ = c.pool.Client.Logs(dc.LogsOptions{Container: c.id, Stdout: true, Stderr: true, OutputStream: &b, ErrorStream: &b, Tail: "20"})
	return last(strings.TrimSpace(b.String()))
}

// removeDocker runs in the guard.
func removeDocker(name string) error {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return err
	}
	_ = pool.Client.UnpauseContainer(name)
	err = pool.Client.RemoveContainer(dc.RemoveContainerOptions{ID: name, Force: true, RemoveVolumes: true})
	var never *dc.NoSuchContainer
	if errors.As(err, &never) {
		return nil
	}
	return err
}
