module flyball.example/subscriber

go 1.21

require (
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.1
	github.com/twmb/franz-go v1.18.1
	gopkg.in/yaml.v3 v3.0.1
)

require (
	github.com/klauspost/compress v1.17.11 // indirect
	github.com/pierrec/lz4/v4 v4.1.22 // indirect
	github.com/twmb/franz-go/pkg/kmsg v1.9.0 // indirect
	golang.org/x/text v0.14.0 // indirect
)
