#!/bin/sh
# Ask a running Apache Kafka 4.3.1 and write its answers below the scenarios' commands: oracle.sh HOST:PORT [option …]
# A default Kafka answers most scenarios. For the others start one with the settings of brokers/impatient.properties
# and pass: --broker impatient. --check writes nothing and shows what would change.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
PYTHONPATH=$here exec "${PYTHON:-python3}" -m oracle.record "$@"
