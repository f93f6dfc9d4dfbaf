package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"tiney/internal/freeport"
)

// service is a process of the service.
type service struct {
	cmd     *exec.Cmd
	address string
	url     string
	found   int    // redirects that it has answered
	path    string // what load is put on, and how it is to be answered
	status  int
}

var client = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Transport:     &http.Transport{MaxIdleConnsPerHost: 64},
	Timeout:       30 * time.Second,
}

// prepare makes a service that is still to be started. Behind the Functions host means that it is told so: there is no
// host that would take its share of the processors.
func (b *bench) prepare(ctx context.Context, hosted bool, more ...string) (*service, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	s := &service{cmd: exec.CommandContext(ctx, b.executable), address: address, url: "http://" + address,
		path: "/" + b.alias, status: http.StatusFound}
	port := "PORT="
	if hosted {
		port = "FUNCTIONS_CUSTOMHANDLER_PORT="
	}
	s.cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), port + s.address[strings.LastIndexByte(s.address, ':')+1:],
		"AzureWebJobsStorage=" + b.emulator.ConnectionString(), "BaseUrl=https://tiney.to",
	}, more...)
	s.cmd.Stderr = os.Stderr
	return s, nil
}

// freeAddress finds an address that nobody listens on.
func freeAddress() (string, error) {
	port, err := freeport.Find()
	return fmt.Sprintf("127.0.0.1:%d", port), err
}

// start starts the service and returns when it has the link in its cache.
func (b *bench) start(ctx context.Context, hosted bool, more ...string) (*service, error) {
	s, err := b.prepare(ctx, hosted, more...)
	if err != nil {
		return nil, err
	}
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	if b.alias == "" {
		return s, nil
	}
	if status, _, err := s.send(http.MethodGet, "/"+b.alias, ""); err != nil || status != http.StatusFound {
		s.stop()
		return nil, fmt.Errorf("a redirect was answered with %d (%v)", status, err)
	}
	s.found++
	return s, nil
}

// run starts the process and returns when it and its storage are ready.
func (s *service) run(ctx context.Context) error {
	if err := s.cmd.Start(); err != nil {
		return err
	}
	ready := func() bool {
		status, _, err := s.send(http.MethodGet, "/api/ready", "")
		return err == nil && status == http.StatusOK
	}
	for end := time.Now().Add(30 * time.Second); !ready(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) || ctx.Err() != nil {
			s.stop()
			return fmt.Errorf("the service is not ready: %w", context.Cause(ctx))
		}
	}
	return nil
}

// stop ends the process as the Functions host does.
func (s *service) stop() {
	_ = s.cmd.Cancel() // which kills it, unless it was told otherwise
	_ = s.cmd.Wait()
	client.CloseIdleConnections()
}

func (s *service) send(method, path, body string) (status int, said []byte, err error) {
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	said, err = io.ReadAll(answer.Body)
	return answer.StatusCode, said, err
}

// makeLink makes the link that redirects are measured with.
func (b *bench) makeLink(ctx context.Context) error {
	s, err := b.start(ctx, false)
	if err != nil {
		return err
	}
	defer s.stop()
	status, said, err := s.send(http.MethodPost, "/api/shorten", `{"longUrl":"`+longURL+`"}`)
	if err != nil || status != http.StatusCreated {
		return fmt.Errorf("shorten was answered with %d (%v)", status, err)
	}
	var made struct{ Alias string }
	if err := json.Unmarshal(said, &made); err != nil {
		return err
	}
	b.alias = made.Alias
	return nil
}
