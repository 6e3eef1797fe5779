// stock-vcsim serves the simulator of govmomi without changes. The tests use it as
// a second vCenter that knows nothing about this project.
package main

import (
	"crypto/tls"
	"encoding/json"
	"flag"
	"io"
	"log"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/vmware/govmomi/simulator"
)

func main() {
	model := simulator.VPX()
	esx := flag.Bool("esx", false, "simulate a single ESXi host")
	load := flag.String("load", "", "directory of a saved model")
	ready := flag.String("ready-file", "", "JSON file written when the server answers")
	flag.IntVar(&model.Datacenter, "datacenters", model.Datacenter, "number of datacenters")
	flag.IntVar(&model.Folder, "folders", 0, "number of datacenters that are in folders")
	flag.Parse()
	if *esx {
		model = simulator.ESX()
	}
	if err := serve(model, *load, *ready); err != nil {
		log.Fatal(err)
	}
}

func serve(model *simulator.Model, load, ready string) error {
	var err error
	if load != "" {
		err = model.Load(load)
	} else {
		err = model.Create()
	}
	if err != nil {
		return err
	}
	defer model.Remove()
	log.SetOutput(io.Discard)
	user := url.UserPassword(os.Getenv("STOCK_VCSIM_USER"), os.Getenv("STOCK_VCSIM_PASSWORD"))
	model.Service.Listen = &url.URL{User: user, Host: "127.0.0.1:0"}
	model.Service.TLS = new(tls.Config)
	server := model.Service.NewServer()
	defer server.Close()
	answer, err := json.Marshal(map[string]string{"host": server.URL.Hostname(), "port": server.URL.Port()})
	if err != nil {
		return err
	}
	draft := ready + ".draft"
	if err := os.WriteFile(draft, answer, 0o600); err != nil {
		return err
	}
	if err := os.Rename(draft, ready); err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
	return nil
}
