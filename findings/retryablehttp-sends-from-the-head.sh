#!/usr/bin/env bash
# github.com/hashicorp/go-retryablehttp 0.7.8 (Go) sends an open file from its first byte, whatever its position: who posts the new lines of a log posts the whole log, without an error.
#
# Guess: a request whose body is a file that was read up to byte 50 sends what comes then, as net/http does; a client that repeats requests notes the position and goes back to it.
# Seen (2026-12-01): it seeks to 0 before each try, the first as well; no server has to fail. Of a log of 10 lines, 5 of which were sent before, the server gets all 10 and answers 200: by
# Post, by FromRequest, and by StandardClient, which takes the place of a net/http.Client in other libraries. A bytes.Reader at the same position sends the 5 lines;
# Post of a strings.Reader fails, since it counts 50 bytes and sends 100.
# Needs Go and the module proxy. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >main.go <<'GO'
package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/hashicorp/go-retryablehttp"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func request(url string, body io.Reader) *http.Request {
	made, err := http.NewRequest(http.MethodPost, url, body)
	must(err)
	return made
}

func main() {
	var got []byte
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		must(err)
		got = body
	}))
	defer server.Close()
	log := ""
	for number := range 10 {
		log += fmt.Sprintf("line %04d\n", number)
	}
	must(os.WriteFile("log", []byte(log), 0o600))
	client := retryablehttp.NewClient()
	client.Logger = nil

	ways := map[string]func(body io.ReadSeeker) (*http.Response, error){
		"net/http": func(body io.ReadSeeker) (*http.Response, error) {
			return http.DefaultClient.Do(request(server.URL, body))
		},
		"Post": func(body io.ReadSeeker) (*http.Response, error) { return client.Post(server.URL, "text/plain", body) },
		"FromRequest": func(body io.ReadSeeker) (*http.Response, error) {
			made, err := retryablehttp.FromRequest(request(server.URL, body))
			must(err)
			return client.Do(made)
		},
		"StandardClient": func(body io.ReadSeeker) (*http.Response, error) {
			return client.StandardClient().Do(request(server.URL, body))
		},
	}
	for way, send := range ways {
		for _, isFile := range []bool{true, false} {
			var body io.ReadSeeker = bytes.NewReader([]byte(log))
			if isFile {
				file, err := os.Open("log")
				must(err)
				body = file
			}
			_, err := body.Seek(50, io.SeekStart)
			must(err)
			answer, err := send(body)
			must(err)
			fmt.Printf("%s, file %v: %s, %d lines, from %q\n", way, isFile, answer.Status, strings.Count(string(got), "\n"), got[:9])
			expected := log[50:]
			if isFile && way != "net/http" {
				expected = log
			}
			if answer.StatusCode != http.StatusOK || string(got) != expected {
				os.Exit(1)
			}
		}
	}
}
GO
{ go mod init example && go get github.com/hashicorp/go-retryablehttp@v0.7.8 && go build -o run .; } >go.log 2>&1
./run
echo "go-retryablehttp 0.7.8: as described"
