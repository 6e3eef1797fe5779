// vgpu-vcsim is a vCenter with GPUs for tests: govmomi's simulator, and on top of
// it GPU hosts, vGPU admission and the refusals of a real server.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

type options struct {
	inventory, version, readyFile, credentials, cert, key, stateDir string
	port, controlPort                                               int
	verbose                                                         bool
}

func main() {
	o := options{}
	flag.StringVar(&o.inventory, "inventory", "", "JSON file with datacenters, hosts and VMs")
	flag.StringVar(&o.version, "api-version", "8.0.3", "8.0.3, 7.0.3 or 6.7")
	flag.StringVar(&o.readyFile, "ready-file", "", "JSON file written when the server answers")
	flag.StringVar(&o.credentials, "credentials", "", "JSON file with user and password; otherwise VGPU_VCSIM_USER and VGPU_VCSIM_PASSWORD")
	flag.StringVar(&o.cert, "cert", "", "TLS certificate; made up if not given")
	flag.StringVar(&o.key, "key", "", "TLS key")
	flag.StringVar(&o.stateDir, "state-dir", "", "directory for datastores and the certificate")
	flag.IntVar(&o.port, "port", 0, "port on 127.0.0.1; 0 takes a free one")
	flag.IntVar(&o.controlPort, "control-port", 0, "port of the control endpoint; 0 takes a free one")
	flag.BoolVar(&o.verbose, "verbose", false, "log what the simulator logs")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "vgpu-vcsim:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	if o.inventory == "" || o.stateDir == "" {
		return errors.New("-inventory and -state-dir are needed")
	}
	if !o.verbose {
		log.SetOutput(io.Discard)
	}
	version, err := findVersion(o.version)
	if err != nil {
		return err
	}
	login, err := readCredentials(o.credentials)
	if err != nil {
		return err
	}
	inventory, err := readInventory(o.inventory)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.stateDir, 0o700); err != nil {
		return err
	}
	certificate, certificatePath, err := serverCertificate(o.cert, o.key, o.stateDir)
	if err != nil {
		return err
	}
	// Both ports are taken before the slow part, so that a taken port fails at once.
	listener, err := listen(o.port)
	if err != nil {
		return err
	}
	control, err := listen(o.controlPort)
	if err != nil {
		return err
	}
	lab, err := newLab(inventory, version, o.stateDir)
	if err != nil {
		return err
	}
	servers := []*http.Server{
		{
			Handler: lab.handler(login, listener.Addr().String()), ReadHeaderTimeout: 10 * time.Second,
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
			ErrorLog:  log.Default(),
		},
		{Handler: lab.controlHandler(), ReadHeaderTimeout: 10 * time.Second},
	}
	failed := make(chan error, len(servers))
	go func() { failed <- servers[0].ServeTLS(listener, "", "") }()
	go func() { failed <- servers[1].Serve(control) }()
	if err := announce(o.readyFile, listener.Addr(), control.Addr(), certificatePath, o.version); err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	select {
	case err := <-failed:
		return err
	case <-stop:
	}
	for _, server := range servers {
		// Clients may wait for updates for minutes; the lab does not wait for them.
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		_ = server.Shutdown(ctx)
		cancel()
	}
	return nil
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}

// announce writes the ready file in one step, so that nobody reads half of it.
func announce(path string, api, control net.Addr, certificate, version string) error {
	if path == "" {
		return nil
	}
	data, err := json.Marshal(map[string]any{
		"host": "127.0.0.1", "port": api.(*net.TCPAddr).Port, "pid": os.Getpid(),
		"control_url": "http://" + control.String(), "certificate": certificate, "api_version": version,
	})
	if err != nil {
		return err
	}
	draft := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".draft")
	if err := os.WriteFile(draft, append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(draft, path)
}
