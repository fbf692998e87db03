#!/bin/sh
# franz-go's own tests of share groups as two programs: build.sh KGO KFAKE, the files to write.
# Those of kgo ask a broker as they are. Those of kfake make a cluster of their own in newCluster; in a copy of the
# package, beside KFAKE, that function and SetGroupConfigs are those of newcluster.go.txt, which lead to a broker.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
kgo=$(realpath -m "$1") kfake=$(realpath -m "$2") package=github.com/twmb/franz-go/pkg/kfake
export GOTOOLCHAIN=local
cd "$here/.."
go test -c -trimpath -o "$kgo" github.com/twmb/franz-go/pkg/kgo
cd "$here"
go mod download
copy=$(mktemp -d "$kfake.XXXXXX")
trap 'rm -rf "$copy"' EXIT
cp -r "$(go list -m -f '{{.Dir}}' $package)" "$copy/kfake"
chmod -R u+w "$copy"
sed -i 's/^func newCluster(/func newOwnCluster(/' "$copy/kfake/helpers_test.go"
sed -i 's/\bc\.SetGroupConfigs(/setGroupConfigs(t, /' "$copy"/kfake/*_test.go
cp newcluster.go.txt "$copy/kfake/newcluster_test.go"
cp go.mod go.sum "$copy"
go mod edit -replace "$package=$copy/kfake" "$copy/go.mod"
go test -c -trimpath -modfile "$copy/go.mod" -o "$kfake" $package
