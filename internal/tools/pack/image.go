package pack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"io"
	"maps"
	"os"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// certificates is the file in which Go on Linux looks for the certificate authorities that it
// trusts.
const certificates = "etc/ssl/certs/ca-certificates.crt"

// Image writes a container image for some architectures of Linux into the folder dir, as an OCI
// image layout. It replaces what is there. The image has only the executable and the certificate
// authorities of Mozilla. The same commit gives the same bytes. infra/Dockerfile describes the same
// image to a container engine.
func Image(root, dir string, architectures ...string) error {
	index := v1.ImageIndex(mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	for _, arch := range architectures {
		image, err := imageFor(root, arch)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux",
				Architecture: arch}}})
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	_, err := layout.Write(dir, index)
	return err
}

// Root writes the files of the image into the folder dir, for a Dockerfile.
func Root(root, dir, arch string) error {
	files, err := imageFiles(root, arch)
	if err != nil {
		return err
	}
	return write(dir, files, Target{OS: "linux"})
}

func imageFiles(root, arch string) (map[string][]byte, error) {
	target := Target{OS: "linux", Arch: arch}
	executable, err := build(root, target)
	var trusted bytes.Buffer
	for authority := range bundle.Roots() {
		if authority.Constraint == nil { // a PEM file cannot express constraints
			_ = pem.Encode(&trusted, &pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate})
		}
	}
	return map[string][]byte{target.executable(): executable, certificates: trusted.Bytes()}, err
}

func imageFor(root, arch string) (v1.Image, error) {
	files, err := imageFiles(root, arch)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(files[name])),
			Mode: int64(Target{OS: "linux"}.mode(name))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(files[name]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	},
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Config = v1.Config{
		Entrypoint: []string{"/handler"},
		// The last is for a container of 64 MiB.
		Env:          []string{"LISTEN_ADDRESS=0.0.0.0", "PORT=8080", "GOMEMLIMIT=56MiB"},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}},
		User:         "65532:65532", // from a number, a cluster can tell that it is not root
		Labels:       map[string]string{"org.opencontainers.image.version": version(root)},
	}
	return mutate.ConfigFile(image, config)
}
