// Stubaz stands in for az, the Azure CLI, where the scripts in infra are tested. It records each call, and answers as it
// was told to. It is a program of its own, and not a test that starts itself again, since it is started some thousand
// times, and a test with the race detector takes its time to start.
//
// Its folder is $STUBAZ. It reads replies.json there, a list of Reply, and appends to calls a Call as a line of JSON.
// What a call names as --src or --src-path becomes uploaded.zip. A command or an option that az does not have, as far as
// the scripts use it, is refused.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Reply is an answer. The first one that fits a call and is not used up answers it.
type Reply struct {
	For    string // the beginning of the arguments, joined by spaces
	Out    string // to stdout
	Err    string // to stderr
	Exit   int
	Upload bool // upload whatever Exit is
	Times  int  // how many calls it answers; 0: any number
	Hang   bool // do not end for a minute after that; the process's ID goes to the file hanging
}

// Call is a call, with the index of the reply that it got. -1: none fitted.
type Call struct {
	Args  []string
	Reply int
}

// options are those of az's commands that the scripts use, as its reference has them. Another one is refused by az itself,
// and so here.
var options = map[string][]string{
	"version":                  {},
	"account show":             {},
	"bicep version":            {},
	"deployment group create":  {"--resource-group", "--name", "--template-file", "--parameters", "--no-prompt"},
	"deployment group what-if": {"--resource-group", "--name", "--template-file", "--parameters", "--no-prompt", "--exclude-change-types"},
	"functionapp deployment source config-zip": {"--resource-group", "--name", "--src", "--timeout"},
	"group create":  {"--name", "--location", "--tags"},
	"group delete":  {"--name", "--yes"},
	"group exists":  {"--name"},
	"group show":    {"--name"},
	"resource list": {"--resource-group"},
	"rest":          {"--method", "--url"},
	"webapp deploy": {"--resource-group", "--name", "--src-path", "--type", "--restart"},
}

// everywhere are the options of every command.
var everywhere = []string{"--output", "--query"}

// refuse says why az would not take these arguments.
func refuse(args []string) error {
	words := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "-") })
	if words < 0 {
		words = len(args)
	}
	command := strings.Join(args[:words], " ")
	known, ok := options[command]
	if !ok {
		return errors.New("there is no command " + command)
	}
	for _, arg := range args[words:] {
		if strings.HasPrefix(arg, "-") && !slices.Contains(known, arg) && !slices.Contains(everywhere, arg) {
			return fmt.Errorf("%s has no option %s", command, arg)
		}
	}
	return nil
}

func main() {
	status, err := answer(os.Getenv("STUBAZ"), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "stub az:", err)
		status = 99
	}
	os.Exit(status)
}

func answer(dir string, args []string) (status int, err error) {
	var replies []Reply
	data, err := os.ReadFile(filepath.Join(dir, "replies.json"))
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(data, &replies); err != nil {
		return 0, err
	}
	record, err := os.OpenFile(filepath.Join(dir, "calls"), os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return 0, err
	}
	defer record.Close()
	used := map[int]int{}
	for calls := json.NewDecoder(record); calls.More(); {
		var call Call
		if err := calls.Decode(&call); err != nil {
			return 0, err
		}
		used[call.Reply]++
	}

	joined := strings.Join(args, " ")
	chosen := -1
	for i, r := range replies {
		if strings.HasPrefix(joined, r.For) && (r.Times == 0 || used[i] < r.Times) {
			chosen = i
			break
		}
	}
	refused := refuse(args)
	if refused != nil {
		chosen = -1
	}
	if err := json.NewEncoder(record).Encode(Call{args, chosen}); err != nil {
		return 0, err
	}
	if refused != nil {
		return 0, refused
	}
	if chosen < 0 {
		return 0, errors.New("no reply to " + joined)
	}
	r := replies[chosen]
	at := slices.IndexFunc(args, func(arg string) bool { return arg == "--src" || arg == "--src-path" })
	if (r.Exit == 0 || r.Upload) && at >= 0 && at+1 < len(args) {
		if err := upload(args[at+1], dir); err != nil {
			return 0, err
		}
	}
	fmt.Fprint(os.Stdout, r.Out)
	fmt.Fprint(os.Stderr, r.Err)
	if r.Hang {
		if err := os.WriteFile(filepath.Join(dir, "hanging"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			return 0, err
		}
		time.Sleep(time.Minute)
	}
	return r.Exit, nil
}

func upload(file, dir string) error {
	uploaded, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	// Whoever reads it sees all of it or nothing.
	part := filepath.Join(dir, "uploaded.part")
	if err := os.WriteFile(part, uploaded, 0o644); err != nil {
		return err
	}
	return os.Rename(part, filepath.Join(dir, "uploaded.zip"))
}
