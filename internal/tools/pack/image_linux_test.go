package pack

import (
	"archive/tar"
	"crypto/x509"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"tiney/internal/testing/freeport"
)

func TestImage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "image")
	cmd := exec.Command(packer, "-image", dir)
	cmd.Dir = "../../.."
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err == nil {
		err = validate.Index(index)
	}
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	if len(manifest.Manifests) != len(machines) {
		t.Fatalf("%d images", len(manifest.Manifests))
	}
	for _, described := range manifest.Manifests {
		arch := described.Platform.Architecture
		t.Run(arch, func(t *testing.T) {
			image, err := index.Image(described.Digest)
			if err != nil {
				t.Fatal(err)
			}
			root := t.TempDir()
			names := unpackImage(t, image, root)
			if want := []string{"etc/ssl/certs/ca-certificates.crt",
				"handler"}; !slices.Equal(names, want) {
				t.Errorf("it has the files %q, want %q", names, want)
			}
			executable, err := elf.Open(filepath.Join(root, "handler"))
			if err != nil {
				t.Fatal(err)
			}
			defer executable.Close()
			if executable.Machine != machines[arch] {
				t.Errorf("its executable is for %v", executable.Machine)
			}
			if trusted, err := os.ReadFile(filepath.Join(root,
				"etc/ssl/certs/ca-certificates.crt")); err != nil ||
				!x509.NewCertPool().AppendCertsFromPEM(trusted) {
				t.Errorf("it trusts nobody: %v", err)
			}
			config, err := image.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			if config.OS != "linux" || config.Architecture != arch ||
				config.Config.User != "65532:65532" {
				t.Errorf("its configuration is %+v", config)
			}
			dockerfile, err := os.ReadFile("../../../infra/Dockerfile")
			if env := strings.Join(config.Config.Env, " "); err != nil ||
				!strings.Contains(string(dockerfile), "\nENV "+env+"\n") {
				t.Errorf("its environment %s is not that of the Dockerfile (%v)", env, err)
			}
			if runtime.GOARCH == arch {
				runImage(t, root, config.Config)
			}
		})
	}
}

// unpackImage unpacks an image into the folder root and returns the names of its files.
func unpackImage(t *testing.T, image v1.Image, root string) (names []string) {
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		data, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		defer data.Close()
		for archive := tar.NewReader(data); ; {
			header, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			content, err := io.ReadAll(archive)
			if err != nil {
				t.Fatal(err)
			}
			to := filepath.Join(root, header.Name)
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(to, content, header.FileInfo().Mode()); err != nil {
				t.Fatal(err)
			}
			names = append(names, header.Name)
		}
	}
	return names
}

// runImage runs an image's executable as a container engine does, except for namespaces. The
// process sees only the image's own files, has the image's environment, and runs as a user that is
// only a number. Changing the root needs the root user or a user namespace, which not every machine
// allows.
func runImage(t *testing.T, root string, config v1.Config) {
	// By default, only the current user can read t.TempDir.
	for dir := root; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	_, settings := storage(t, "127.0.0.1")
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: config.Entrypoint[0], Args: config.Entrypoint, Stdout: t.Output(),
		Stderr: t.Output()}
	cmd.Env = slices.Concat(config.Env, settings, []string{"PORT=" + strconv.Itoa(port),
		"LISTEN_ADDRESS=127.0.0.1"})
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532,
		Gid: 65532}}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 65532,
			HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 65532,
			HostID: os.Getgid(), Size: 1}}
	}
	cmd.Dir = "/"
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	use(t, "http://127.0.0.1:"+strconv.Itoa(port))
}
