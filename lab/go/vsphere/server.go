package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	pbm "github.com/vmware/govmomi/pbm/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// credentials are read from a file or the environment, never from the command
// line, where every user of the machine could see them.
type credentials struct {
	User     string `json:"user"`
	Password string `json:"password"`
}

func readCredentials(path string) (credentials, error) {
	login := credentials{User: os.Getenv("VGPU_VCSIM_USER"), Password: os.Getenv("VGPU_VCSIM_PASSWORD")}
	if path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return login, err
		}
		if err := json.Unmarshal(data, &login); err != nil {
			return login, fmt.Errorf("credentials %s: %w", path, err)
		}
	}
	if login.User == "" || login.Password == "" {
		return login, fmt.Errorf("no credentials: give -credentials or VGPU_VCSIM_USER and VGPU_VCSIM_PASSWORD")
	}
	return login, nil
}

// handler serves the SOAP API as govmomi's own server would, on a listener of ours.
func (l *Lab) handler(login credentials, host string) http.Handler {
	path := l.ctx.Map.Path
	l.service.RegisterSDK(l.ctx.Map, path+"/vimService")
	policies := pbm.New()
	policies.Handler = l.policyRoute
	l.service.RegisterSDK(policies, "/pbm/sdk")
	l.service.Listen = &url.URL{Scheme: "https", Host: host, Path: path, User: url.UserPassword(login.User, login.Password)}
	sessions := l.ctx.Map.SessionManager()
	sessions.ServiceHostName = host
	sessions.ValidLogin = func(tried *types.Login) bool { return l.mayLogIn(login, tried) }
	l.service.ServeMux.HandleFunc(path+"/vimServiceVersions.xml", l.serveVersions)
	l.service.ServeMux.HandleFunc("/folder/", l.service.ServeDatastore)
	return l.mend(l.service.ServeMux)
}

// serveVersions is where clients look for the newest version they share.
func (l *Lab) serveVersions(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/xml")
	fmt.Fprintf(w, "<?xml version=\"1.0\" encoding=\"UTF-8\" ?>\n<namespaces version=\"1.0\">\n<namespace><name>urn:vim25</name><version>%s</version><priorVersions>", l.version.API)
	for _, version := range l.version.Prior {
		fmt.Fprintf(w, "<version>%s</version>", version)
	}
	fmt.Fprint(w, "</priorVersions></namespace>\n</namespaces>\n")
}

var (
	emptyFault  = regexp.MustCompile(`<faultstring>(\*types\.\w+)?</faultstring>`)
	faultKind   = regexp.MustCompile(`xsi:type="(\w+)"`)
	faultWords  = regexp.MustCompile(`<faultMessage>.*?<message>([^<]*)</message>`)
	fetchMethod = regexp.MustCompile(`<(\w+:)?Fetch[ >]`)
	unsetAnswer = regexp.MustCompile(`<RetrievePropertiesExResponse[^>]*>.*</RetrievePropertiesExResponse>`)
)

// mend corrects two answers of govmomi on their way out: SOAP faults without
// words, and reads of an unset property, which a client must not mistake for a value.
func (l *Lab) mend(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(request))
		l.holds.arrived(r)
		if r.Context().Err() != nil {
			return // the client is gone, so nobody has asked
		}
		held := sync.OnceFunc(func() { l.holds.answered(methodOf(request), r) })
		next.ServeHTTP(&mendedWriter{ResponseWriter: w, fetch: fetchMethod.Match(request), before: held}, r)
	})
}

type mendedWriter struct {
	http.ResponseWriter
	faulty bool
	fetch  bool
	before func()
}

func (m *mendedWriter) WriteHeader(status int) {
	m.before()
	m.faulty = status == http.StatusInternalServerError
	m.ResponseWriter.WriteHeader(status)
}

func (m *mendedWriter) Write(body []byte) (int, error) {
	m.before()
	mended := body
	switch {
	case m.faulty:
		mended = emptyFault.ReplaceAllLiteral(body, []byte("<faultstring>"+words(body)+"</faultstring>"))
	case m.fetch:
		mended = newFields(unsetAnswer.ReplaceAllLiteral(body, []byte(`<FetchResponse xmlns="urn:vim25"></FetchResponse>`)))
	default:
		mended = newFields(body)
	}
	_, err := m.ResponseWriter.Write(mended)
	return len(body), err
}

var (
	newState = regexp.MustCompile(`<hardwareLabel>([^<|]*)\|(\w*)\|([^<|]*)\|(\d+)\|</hardwareLabel>`)
	newInfo  = regexp.MustCompile(`<deviceClassName>([^<|]*)\|(\w*)\|(\w*)\|([\d.]*)\|(\d+)\|</deviceClassName>`)
)

var newBinding = regexp.MustCompile(`<instanceId>([^<|]*)\|([^<|]*)\|(\d+)\|</instanceId>(<vm [^>]*>[^<]*</vm>)`)

// newFields sets apart what came with API versions that govmomi does not know.
func newFields(body []byte) []byte {
	body = newState.ReplaceAllFunc(body, func(found []byte) []byte {
		part := newState.FindSubmatch(found)
		modes := bytes.ReplaceAll(part[3], []byte(","), []byte("</configurableModes><configurableModes>"))
		return fmt.Appendf(nil, "<hardwareLabel>%s</hardwareLabel><directPathState><mode>%s</mode><configurableModes>%s</configurableModes><usedMemory>%s</usedMemory></directPathState>",
			part[1], part[2], modes, part[4])
	})
	body = newInfo.ReplaceAll(body, []byte("<deviceClassName>$1</deviceClassName><directPathInfo><interconnectType>$2</interconnectType>"+
		"<driverName>$3</driverName><driverVersion>$4</driverVersion><availableMemory>$5</availableMemory></directPathInfo>"))
	return newBinding.ReplaceAll(body, []byte("<instanceId>$1</instanceId>$4<pciId>$2</pciId><deviceKey>$3</deviceKey>"))
}

func words(fault []byte) string {
	if found := faultWords.FindSubmatch(fault); found != nil {
		return string(found[1])
	}
	if kind := faultKind.FindSubmatch(fault); kind != nil {
		return defaultText(string(kind[1]))
	}
	return ""
}

// serverCertificate loads the given pair, or makes one for the loopback address
// and leaves it where clients can find it.
func serverCertificate(certFile, keyFile, stateDir string) (tls.Certificate, string, error) {
	if certFile != "" {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		return pair, certFile, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		return tls.Certificate{}, "", err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "vgpu-fleet lab vCenter"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	path := filepath.Join(stateDir, "vcenter.pem")
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, path, os.WriteFile(path, data, 0o600)
}
