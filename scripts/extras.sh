#!/bin/sh
# Install what some tests need beyond Python: Java and Maven (Apache Kafka's jars) and kcat.
# Nothing here is fatal: what cannot be had is named, and the tests that need it skip, saying why.
set -u

missing=""
command -v java >/dev/null 2>&1 || missing="$missing default-jdk-headless"
command -v mvn >/dev/null 2>&1 || missing="$missing maven"
command -v kcat >/dev/null 2>&1 || command -v kafkacat >/dev/null 2>&1 || missing="$missing kcat"

if [ -n "$missing" ]; then
  if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    echo "installing:$missing"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y $missing; } >/dev/null 2>&1 ||
      echo "could not install:$missing (their tests will skip)"
  elif command -v brew >/dev/null 2>&1; then
    echo "not installed:$missing. Try: brew install openjdk@17 maven kcat (their tests skip until then)"
  else
    echo "not installed:$missing. Install them by your package manager, or their tests skip"
  fi
fi

if command -v java >/dev/null 2>&1 && command -v mvn >/dev/null 2>&1; then
  .venv/bin/python -m tests.apache.fetch || echo "could not fetch Apache Kafka's jars (their tests will skip)"
fi
exit 0
