#!/bin/sh
# Make what compose.yaml reads: passwords, a key pair, the token of Prometheus.  What is there stays.
#
# It needs `legation`; where that is in the image alone:
#   LEGATION='docker run --rm --user 0 --volume ./secrets:/srv/legation/secrets legation' ./make-secrets.sh
set -eu
cd "$(dirname "$0")"
legation=${LEGATION:-legation}

umask 077
mkdir -p secrets

# The files are mounted for users of the containers, so that those have to read them; the folder is
# for its owner alone.
write() {
    [ -s "secrets/$1" ] && return
    cat > "secrets/$1.new"
    chmod 0444 "secrets/$1.new"
    mv "secrets/$1.new" "secrets/$1"
}

password() {
    head -c 24 /dev/urandom | base64 | tr -d '\n' | tr '+/' '-_'
}

password | write postgres_password
password | write grafana_password
password | write audit_key
printf 'postgresql://legation:%s@postgres/legation' "$(cat secrets/postgres_password)" | write database_url

[ -s secrets/keys/private.pem ] || $legation keys new secrets/keys > /dev/null
[ -s .env ] || printf 'JWT_VERIFICATION_KEY="%s"\n' "$(cat secrets/keys/public.pem)" > .env
[ -s secrets/scraper_token ] || token=$($legation token --key secrets/keys/private.pem --sub prometheus \
    --aud front-office --scope metrics:read --expires 8760h)
printf '%s' "${token:-}" | write scraper_token

echo "Made what was missing in secrets/ and .env.  Keep secrets/keys/private.pem elsewhere: the server does not need it."
