// A worker in Go, 1.19 or newer: `worker QUEUE`. SIGTERM lets it finish its job first.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

const wait = 5 * time.Second // a fetch waits at most this long, so that SIGTERM does not wait longer

var (
	server = env("CORVO_SERVER", "http://127.0.0.1:8080")
	apiKey = env("CORVO_API_KEY", "")
	client = http.Client{Timeout: wait + 10*time.Second}
)

// job is the part of a fetched job that is used.
type job struct {
	ID         string `json:"job_id"`
	LeaseToken uint64 `json:"lease_token"`
	Payload    json.RawMessage
}

// work does the job. An error fails the attempt; the job is retried after a delay.
func work(ctx context.Context, j job) (any, error) {
	var letter struct {
		To      string
		Seconds float64
	}
	if err := json.Unmarshal(j.Payload, &letter); err != nil {
		return nil, err
	}
	if letter.To == "" {
		return nil, errors.New("the letter has no address")
	}
	fmt.Println("sending a letter to", letter.To)
	select { // stands for work that takes time
	case <-time.After(time.Duration(letter.Seconds * float64(time.Second))):
		return map[string]bool{"sent": true}, nil
	case <-ctx.Done():
		return nil, errors.New("stopped because of a cancel")
	}
}

// call sends a request: its status and answer. Without an answer, there is an error.
func call(path string, body any) (int, []byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	request, err := http.NewRequest("POST", server+"/api/v1/"+path, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("X-API-Key", apiKey)
	answer, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	return answer.StatusCode, said, err
}

// report repeats a report until a server answers: the lease token makes that safe.
func report(path string, body map[string]any) {
	for {
		status, said, err := call(path, body)
		switch {
		case err == nil && status < 300:
			return
		case err == nil && status < 500 && status != 429:
			// 409 LEASE_LOST: the lease has expired, and another worker may have the job.
			log.Printf("rejected: %s", said)
			return
		}
		log.Printf("no answer: %d %v", status, err)
		time.Sleep(time.Second)
	}
}

// heartbeat renews the lease until the work has ended. It stops the work if the job was cancelled,
// or another worker has it.
func heartbeat(ctx context.Context, j job, lease time.Duration, stop func()) {
	beat := time.NewTicker(lease / 3)
	defer beat.Stop()
	body := map[string]any{"jobs": map[string]any{j.ID: map[string]any{"lease_token": j.LeaseToken}}}
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		}
		var answer struct {
			Jobs map[string]struct{ Status string }
		}
		status, said, err := call("heartbeat", body)
		if err != nil || status != 200 || json.Unmarshal(said, &answer) != nil {
			log.Printf("no heartbeat: %d %v", status, err) // the lease lasts for two more
		} else if answer.Jobs[j.ID].Status == "cancel" {
			stop()
		}
	}
}

// run does one job, and reports its end.
func run(j job, lease time.Duration) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go heartbeat(ctx, j, lease, stop)
	result, err := work(ctx, j)
	if err != nil {
		report("fail/"+j.ID, map[string]any{"lease_token": j.LeaseToken, "error": err.Error()})
	} else {
		report("ack/"+j.ID, map[string]any{"lease_token": j.LeaseToken, "result": result})
	}
}

func main() {
	queue := os.Args[1]
	seconds, err := strconv.Atoi(env("LEASE_SECONDS", "30"))
	if err != nil {
		log.Fatal(err)
	}
	stopping, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	fetch := map[string]any{
		"queues":        []string{queue},
		"worker_id":     fmt.Sprintf("go-%d", os.Getpid()),
		"wait_seconds":  int(wait.Seconds()),
		"lease_seconds": seconds,
	}
	fmt.Println("waiting for jobs of", queue)
	for stopping.Err() == nil {
		status, said, err := call("fetch", fetch)
		if err == nil && status == 204 {
			continue // no job within the wait
		}
		var j job
		if err == nil && status == 200 {
			err = json.Unmarshal(said, &j)
		}
		if err != nil || status != 200 {
			log.Printf("no answer: %d %s %v", status, said, err) // the server is overloaded, or restarts
			time.Sleep(time.Second)
			continue
		}
		run(j, time.Duration(seconds)*time.Second)
	}
	fmt.Println("stopped")
}

// env is a variable, or its default.
func env(name, usual string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return usual
}
