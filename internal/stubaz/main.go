// Stubaz stands in for az, the Azure CLI, where the scripts in infra are tested. It records each call, and answers as it
// was told to. It is a program of its own, and not a test that starts itself again, since it is started some thousand
// times, and a test with the race detector takes its time to start.
//
// Its folder is $STUBAZ. It reads replies.json there, a list of Reply, and appends to calls a Call as a line of JSON.
// What a call names as --src or --src-path becomes uploaded.zip.
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
	For   string // the beginning of the arguments, joined by spaces
	Out   string // to stdout
	Err   string // to stderr
	Exit  int
	Times int  // how many calls it answers; 0: any number
	Hang  bool // answer after a minute only; the process's ID goes to the file hanging
}

// Call is a call, with the index of the reply that it got. -1: none fitted.
type Call struct {
	Args  []string
	Reply int
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
	if err := json.NewEncoder(record).Encode(Call{args, chosen}); err != nil {
		return 0, err
	}
	if chosen < 0 {
		return 0, errors.New("no reply to " + joined)
	}
	r := replies[chosen]
	if r.Hang {
		if err := os.WriteFile(filepath.Join(dir, "hanging"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			return 0, err
		}
		time.Sleep(time.Minute)
	}
	fmt.Fprint(os.Stdout, r.Out)
	fmt.Fprint(os.Stderr, r.Err)
	at := slices.IndexFunc(args, func(arg string) bool { return arg == "--src" || arg == "--src-path" })
	if r.Exit != 0 || at < 0 || at+1 == len(args) {
		return r.Exit, nil
	}
	uploaded, err := os.ReadFile(args[at+1])
	if err != nil {
		return 0, err
	}
	// Whoever reads it sees all of it or nothing.
	part := filepath.Join(dir, "uploaded.part")
	if err := os.WriteFile(part, uploaded, 0o644); err != nil {
		return 0, err
	}
	return 0, os.Rename(part, filepath.Join(dir, "uploaded.zip"))
}
