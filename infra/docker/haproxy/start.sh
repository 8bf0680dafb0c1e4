#!/bin/sh
# Becomes HAProxy once its configuration is there. Its paths are relative to the volume.
cd /run/front || exit 2
until [ -f haproxy.cfg ]; do sleep 0.2; done
exec haproxy -db -f haproxy.cfg
