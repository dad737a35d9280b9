#!/bin/sh
# As the official image: redis-server runs as the user redis and without the protected mode.
set -eu
if [ "$1" = redis-server ] && [ "$(id -u)" = 0 ]; then
    find . \! -user redis -exec chown redis '{}' +
    exec setpriv --reuid=redis --regid=redis --clear-groups -- "$0" "$@"
fi
if [ "$1" = redis-server ]; then
    exec "$@" --protected-mode no
fi
exec "$@"
