#!/bin/sh
# Install what is needed beyond Python: Java (Spark, some tests), Maven (the jars of Apache Kafka and
# ZooKeeper), kcat, logrotate (tests of the agent), Chromium (tests of the console).
# With the argument `java` only that. Nothing here is fatal: what cannot be had is named, and the
# tests that need it skip, saying why.
set -u

only="${1:-all}"
missing=""
command -v java >/dev/null 2>&1 || missing="$missing default-jdk-headless"
[ "$only" = java ] || command -v mvn >/dev/null 2>&1 || missing="$missing maven"
[ "$only" = java ] || command -v kcat >/dev/null 2>&1 || command -v kafkacat >/dev/null 2>&1 || missing="$missing kcat"
[ "$only" = java ] || command -v logrotate >/dev/null 2>&1 || [ -x /usr/sbin/logrotate ] || missing="$missing logrotate"
[ "$only" = java ] || command -v chromium >/dev/null 2>&1 || missing="$missing chromium"
# Brokers in network namespaces, for tests with cut links.
[ "$only" = java ] || [ "$(uname)" != Linux ] || command -v ip >/dev/null 2>&1 || missing="$missing iproute2"

if [ -n "$missing" ]; then
  if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    echo "installing:$missing"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y $missing; } >/dev/null 2>&1 ||
      echo "could not install:$missing (their tests will skip)"
  elif [ "$only" = java ]; then
    : # the demo itself says what to install
  elif command -v brew >/dev/null 2>&1; then
    echo "not installed:$missing. Try: brew install openjdk@17 maven kcat logrotate chromium (their tests skip until then)"
  else
    echo "not installed:$missing. Install them by your package manager, or their tests skip"
  fi
fi

[ "$only" = java ] && exit 0
if command -v java >/dev/null 2>&1 && command -v mvn >/dev/null 2>&1; then
  .venv/bin/python -m tests.apache.fetch || echo "could not fetch the jars of Apache Kafka and ZooKeeper (their tests will skip)"
fi
exit 0
