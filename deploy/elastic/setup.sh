#!/usr/bin/env bash
# Puts the index template into Elasticsearch and the saved search into Kibana. May run again and again.
#   ELASTICSEARCH=http://... KIBANA=http://... deploy/elastic/setup.sh
set -euo pipefail
here=$(dirname "$0")
curl -sSf -X PUT "${ELASTICSEARCH:?}/_index_template/logs-danqing" -H 'Content-Type: application/json' \
  --data-binary "@$here/index-template.json"
echo
for _ in $(seq 120); do
  if curl -sf "${KIBANA:?}/api/status" >/dev/null; then
    curl -sSf -X POST "$KIBANA/api/saved_objects/_import?overwrite=true" -H 'kbn-xsrf: danqing' \
      --form "file=@$here/saved-objects.ndjson"
    echo
    exit 0
  fi
  sleep 5
done
echo "setup.sh: Kibana at $KIBANA did not answer within ten minutes" >&2
exit 1
