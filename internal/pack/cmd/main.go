// Cmd lays out the function app for `make build` and `make package`.
//
//	go run ./internal/pack/cmd -dir build/app
//	go run ./internal/pack/cmd -zip build/tiney-windows-386.zip -os windows -arch 386
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"

	"tiney/internal/pack"
)

func main() {
	dir := flag.String("dir", "", "lay the app out in this `folder`")
	file := flag.String("zip", "", "write the app as a package to this `file`")
	target := pack.Target{}
	flag.StringVar(&target.OS, "os", runtime.GOOS, "the `GOOS` to build for")
	flag.StringVar(&target.Arch, "arch", runtime.GOARCH, "the `GOARCH` to build for")
	flag.Parse()

	var err error
	switch {
	case *dir != "" && *file == "":
		err = pack.Dir(".", *dir, target)
	case *file != "" && *dir == "":
		err = pack.Zip(".", *file, target)
	default:
		err = fmt.Errorf("give either -dir or -zip")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
