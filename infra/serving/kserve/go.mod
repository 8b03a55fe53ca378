// KServe, of which the custom resource alone is used: a module of its own, since nothing of it is built.
module flyball.dev/infra/serving/kserve

go 1.26.0

require github.com/kserve/kserve v0.16.0
