// Cmd lays out the function app for `make build` and `make package`. It lays out the container
// image for `make image`.
//
//	go run ./internal/tools/pack/cmd -dir build/app
//	go run ./internal/tools/pack/cmd -zip build/tiney-windows-386.zip -os windows -arch 386
//	go run ./internal/tools/pack/cmd -zip build/tiney-webapp-windows-386.zip -os windows -arch 386 -webapp
//	go run ./internal/tools/pack/cmd -image build/image
//	go run ./internal/tools/pack/cmd -rootfs /image -arch amd64
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"

	"tiney/internal/tools/pack"
)

func main() {
	dir := flag.String("dir", "", "lay the app out in this `folder`")
	file := flag.String("zip", "", "write the app as a package to this `file`")
	image := flag.String("image", "",
		"write a container image for linux/amd64 and linux/arm64 to this `folder`, as an OCI "+
			"image layout")
	rootfs := flag.String("rootfs", "",
		"write the files of the container image for linux and -arch into this `folder`")
	target := pack.Target{}
	flag.StringVar(&target.OS, "os", runtime.GOOS, "the `GOOS` to build for")
	flag.StringVar(&target.Arch, "arch", runtime.GOARCH, "the `GOARCH` to build for")
	flag.BoolVar(&target.WebApp, "webapp", false,
		"with -zip: for a web app, without the Functions host")
	flag.Parse()

	var err error
	switch {
	case len(slices.DeleteFunc([]string{*dir, *file, *image,
		*rootfs}, func(s string) bool { return s == "" })) != 1, target.WebApp && *file == "":
		err = errors.New("give one of -dir, -zip, -image and -rootfs, and -webapp with -zip only")
	case *dir != "":
		err = pack.Dir(".", *dir, target)
	case *file != "":
		err = pack.Zip(".", *file, target)
	case *image != "":
		err = pack.Image(".", *image, "amd64", "arm64")
	default:
		err = pack.Root(".", *rootfs, target.Arch)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
