// A subscriber that knows Flyball from its AsyncAPI document alone: from_schema DOCUMENT CHANNEL BROKER
// It prints each message of a channel as "NAME KEY valid" or "NAME KEY invalid".
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"gopkg.in/yaml.v3"
)

type reference struct {
	Ref string `json:"$ref"`
}

type document struct {
	Channels map[string]struct {
		Address  string               `json:"address"`
		Messages map[string]reference `json:"messages"`
	} `json:"channels"`
	Components struct {
		Messages map[string]struct {
			Name    string    `json:"name"`
			Payload reference `json:"payload"`
		} `json:"messages"`
	} `json:"components"`
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	path, channelName, broker := os.Args[1], os.Args[2], os.Args[3]
	var raw any
	if err := yaml.Unmarshal(must(os.ReadFile(path)), &raw); err != nil {
		log.Fatal(err)
	}
	text := must(json.Marshal(raw))
	var known document
	if err := json.Unmarshal(text, &known); err != nil {
		log.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("urn:flyball", must(jsonschema.UnmarshalJSON(bytes.NewReader(text)))); err != nil {
		log.Fatal(err)
	}
	channel := known.Channels[channelName]
	schemas := map[string]*jsonschema.Schema{}
	for _, message := range channel.Messages {
		found := known.Components.Messages[message.Ref[strings.LastIndex(message.Ref, "/")+1:]]
		schemas[found.Name] = must(compiler.Compile("urn:flyball" + found.Payload.Ref))
	}

	client := must(kgo.NewClient(
		kgo.SeedBrokers(broker),
		kgo.ConsumerGroup(channel.Address),
		kgo.ConsumeTopics(channel.Address),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.MaxVersions(kversion.V2_3_0()),
	))
	defer client.Close()
	for {
		client.PollFetches(context.Background()).EachRecord(func(record *kgo.Record) {
			name := ""
			for _, header := range record.Headers {
				if header.Key == "ce_type" {
					name = string(header.Value)
				}
			}
			verdict := "invalid"
			payload, err := jsonschema.UnmarshalJSON(bytes.NewReader(record.Value))
			if schema := schemas[name]; err == nil && schema != nil && schema.Validate(payload) == nil {
				verdict = "valid"
			}
			fmt.Println(name, string(record.Key), verdict)
		})
	}
}
