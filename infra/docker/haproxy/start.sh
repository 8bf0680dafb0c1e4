#!/bin/sh
# Becomes HAProxy once its configuration is in the volume, in the folder of it that is given. Its paths are relative.
folder=/run/front/${1:-.}
until [ -f "$folder/haproxy.cfg" ]; do sleep 0.2; done
cd "$folder" || exit 2
exec haproxy -db -f haproxy.cfg
