// Calls an external scaler as KEDA does, by KEDA's own contract, and prints each answer as a line of JSON.
//
//	keda-client [-ca FILE] [-cert FILE -key FILE] ADDRESS METHOD NAMESPACE NAME [KEY=VALUE]...
//
// A method is IsActive, StreamIsActive, GetMetricSpec or GetMetrics. An error goes to standard error, with status 1.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

func main() {
	ca := flag.String("ca", "", "authority of the server's certificate")
	cert := flag.String("cert", "", "certificate of the client")
	key := flag.String("key", "", "its key")
	flag.Parse()
	if err := query(*ca, *cert, *key, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func query(ca, cert, key string, args []string) error {
	if len(args) < 4 {
		return errors.New("keda-client: ADDRESS METHOD NAMESPACE NAME [KEY=VALUE]...")
	}
	trusted, err := transport(ca, cert, key)
	if err != nil {
		return err
	}
	connection, err := grpc.NewClient(args[0], grpc.WithTransportCredentials(trusted))
	if err != nil {
		return err
	}
	defer connection.Close()
	reference := &externalscaler.ScaledObjectRef{Namespace: args[2], Name: args[3], ScalerMetadata: map[string]string{}}
	for _, pair := range args[4:] {
		name, value, _ := strings.Cut(pair, "=")
		reference.ScalerMetadata[name] = value
	}
	client, background := externalscaler.NewExternalScalerClient(connection), context.Background()
	switch args[1] {
	case "IsActive":
		return show(client.IsActive(background, reference))
	case "GetMetricSpec":
		return show(client.GetMetricSpec(background, reference))
	case "GetMetrics":
		return metrics(background, client, reference)
	case "StreamIsActive":
		return stream(background, client, reference)
	}
	return fmt.Errorf("keda-client: no method %s", args[1])
}

// metrics queries each metric of the specification, as KEDA does.
func metrics(background context.Context, client externalscaler.ExternalScalerClient, reference *externalscaler.ScaledObjectRef) error {
	specification, err := client.GetMetricSpec(background, reference)
	if err != nil {
		return err
	}
	for _, metric := range specification.MetricSpecs {
		request := &externalscaler.GetMetricsRequest{ScaledObjectRef: reference, MetricName: metric.MetricName}
		if err := show(client.GetMetrics(background, request)); err != nil {
			return err
		}
	}
	return nil
}

func stream(background context.Context, client externalscaler.ExternalScalerClient, reference *externalscaler.ScaledObjectRef) error {
	answers, err := client.StreamIsActive(background, reference)
	if err != nil {
		return err
	}
	for {
		answer, err := answers.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err := show(answer, err); err != nil {
			return err
		}
	}
}

func show(answer proto.Message, err error) error {
	if err != nil {
		return err
	}
	text, err := protojson.Marshal(answer)
	fmt.Println(string(text))
	return err
}

func transport(ca, cert, key string) (credentials.TransportCredentials, error) {
	if ca == "" {
		return insecure.NewCredentials(), nil
	}
	bundle, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(bundle)
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(config), nil
}
