// Cmd lays out the function app for `make build` and `make package`.
//
//	go run ./internal/pack/cmd -dir build/app
//	go run ./internal/pack/cmd -zip build/tiney-windows-386.zip -os windows -arch 386
//	go run ./internal/pack/cmd -zip build/tiney-webapp-windows-386.zip -os windows -arch 386 -webapp
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
	flag.BoolVar(&target.WebApp, "webapp", false, "with -zip: for a web app, without the Functions host")
	flag.Parse()

	var err error
	switch {
	case *dir != "" && *file == "" && !target.WebApp:
		err = pack.Dir(".", *dir, target)
	case *file != "" && *dir == "":
		err = pack.Zip(".", *file, target)
	default:
		err = fmt.Errorf("give either -dir or -zip, and -webapp with -zip only")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
