// A producer in Go, 1.19 or newer: `producer QUEUE ID PAYLOAD`.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
)

// made is the part of the answer that is used.
type made struct {
	JobID   string `json:"job_id"`
	Existed bool   `json:"unique_existing"`
}

// enqueue creates a job once: with your own id, repeating the request creates no second job.
func enqueue(queue, id string, payload json.RawMessage) (made, error) {
	var got made
	server := os.Getenv("CORVO_SERVER")
	if server == "" {
		server = "http://127.0.0.1:8080"
	}
	body, err := json.Marshal(map[string]any{"queue": queue, "id": id, "payload": payload})
	if err != nil {
		return got, err
	}
	request, err := http.NewRequest("POST", server+"/api/v1/enqueue", bytes.NewReader(body))
	if err != nil {
		return got, err
	}
	request.Header.Set("X-API-Key", os.Getenv("CORVO_API_KEY"))
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return got, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return got, err
	}
	if answer.StatusCode >= 300 {
		return got, fmt.Errorf("%s", text)
	}
	return got, json.Unmarshal(text, &got)
}

func main() {
	got, err := enqueue(os.Args[1], os.Args[2], json.RawMessage(os.Args[3]))
	if err != nil {
		log.Fatal(err)
	}
	if got.Existed {
		fmt.Println(got.JobID, "existed")
	} else {
		fmt.Println(got.JobID, "was created")
	}
}
