// Dev is the program of `make run`. It starts Azurite and then the service in build/app, and ends
// both on Ctrl-C.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tiney/handler/app"
	"tiney/internal/testing/azurite"
)

const folder = "build/app"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "make run:", err)
		os.Exit(1)
	}
}

func run() error {
	stop, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM,
		syscall.SIGHUP)
	defer restore()

	env, adminKey, err := developmentSettings()
	if err != nil {
		return err
	}
	port := os.Getenv("PORT")
	if port == "" {
		port = "7071"
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("PORT must be a number from 1 to 65535, not %q", port)
	}
	if l, err := net.Listen("tcp", "127.0.0.1:"+port); err != nil {
		return fmt.Errorf("port %s is taken; end what listens there, or choose another with "+
			"PORT=8080 make run (%w)", port, err)
	} else {
		l.Close()
	}

	ended := make(<-chan struct{})
	if namesStorage(os.Environ()) {
		fmt.Println("Storage: the account that AzureWebJobsStorage names")
	} else {
		if err := os.MkdirAll(".azurite", 0o755); err != nil {
			return err
		}
		storage, err := azurite.Start(stop, azurite.DefaultPorts, ".azurite", os.Stderr)
		if err != nil && stop.Err() != nil {
			return nil // the user interrupted the start
		}
		if err != nil {
			return fmt.Errorf("%w; to use a storage that runs already, set AzureWebJobsStorage "+
				"(for that Azurite: UseDevelopmentStorage=true)", err)
		}
		defer storage.Stop() // after the service has ended, which writes until then
		ended = storage.Exited()
		fmt.Println("Storage: Azurite, with its data in .azurite")
	}

	base := "http://localhost:" + port
	if os.Getenv("BaseUrl") == "" {
		env = append(env, "BaseUrl="+base)
	}
	cmd := service(port)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, os.Stdout, os.Stderr
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()

	if responds(stop, base, exited) {
		fmt.Print(app.Welcome(base, adminKey))
	}
	select {
	case err := <-exited:
		return fmt.Errorf("the service ended: %v", err)
	case <-ended:
		err = fmt.Errorf("azurite ended")
	case <-stop.Done():
		restore() // so that a second Ctrl-C ends this process at once
	}
	interrupt(cmd)
	<-exited
	return err
}

// service returns the command `func start` if the Azure Functions Core Tools are installed.
// Otherwise it returns the command of the executable on its own.
func service(port string) *exec.Cmd {
	if tools, err := exec.LookPath("func"); err == nil {
		fmt.Println("Service: the Functions host of the Azure Functions Core Tools, in", folder)
		cmd := exec.Command(tools, "start", "--port", port)
		cmd.Dir = folder
		return cmd
	}
	fmt.Println("Service: on its own, since the Azure Functions Core Tools are not installed")
	return exec.Command(filepath.Join(folder, "handler"))
}

// developmentSettings returns the environment. For variables that the environment lacks, it adds
// the values of local.settings.json, as `func start` does by itself. It also returns the admin key,
// or "" if the user has set one, which is not shown.
func developmentSettings() (env []string, adminKey string, err error) {
	data, err := os.ReadFile("local.settings.json")
	if err != nil {
		return nil, "", err
	}
	var file struct{ Values map[string]string }
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, "", fmt.Errorf("local.settings.json: %w", err)
	}
	env, adminKey = os.Environ(), file.Values["ADMIN_KEY"]
	if os.Getenv("ADMIN_KEY") != "" {
		adminKey = ""
	}
	named := namesStorage(env)
	for name, value := range file.Values {
		if os.Getenv(name) == "" && !(named && name == "AzureWebJobsStorage") {
			env = append(env, name+"="+value)
		}
	}
	return env, adminKey, nil
}

// namesStorage reports whether the environment names a storage account, in any form of the setting.
func namesStorage(env []string) bool {
	return slices.ContainsFunc(env, func(e string) bool {
		name, value, _ := strings.Cut(e, "=")
		return value != "" && (name == "AzureWebJobsStorage" ||
			strings.HasPrefix(name, "AzureWebJobsStorage__"))
	})
}

// responds waits until the service accepts connections. It returns false if the service has ended
// or the user has interrupted it.
func responds(stop context.Context, base string, exited chan error) bool {
	for {
		conn, err := net.DialTimeout("tcp", base[len("http://"):], time.Second)
		if err == nil {
			conn.Close()
			return true
		}
		select {
		case err := <-exited:
			exited <- err
			return false
		case <-stop.Done():
			return false
		case <-time.After(50 * time.Millisecond):
		}
	}
}
