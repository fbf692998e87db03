// Package kfake names the version of kfake whose own tests of share groups build.sh makes a program of, and of what
// these need. kfake is ahead of the versions that it names itself.
package kfake

import (
	_ "github.com/twmb/franz-go/pkg/kadm"
	_ "github.com/twmb/franz-go/pkg/kfake"
	_ "github.com/twmb/franz-go/pkg/kgo"
)
