# What the images of hifi share, made once for all of them. images.sh builds its targets:
#   runtime   Python, and the user that every container runs as
#   java      the same with a Java that has the modules of Kafka and Spark
#   jars      /jars/kafka, connect, debezium and spark
#   parts     packages, code and compiled modules, by image: /images/<name>/{packages,code}
#   services  runtime with the packages of libs: the base of the services without Spark
#   spark     java with the packages of libs and Spark: the base of the services with Spark
ARG BASE_IMAGE=python:3.12-slim
ARG COMPILER_IMAGE=python:3.12
ARG JDK_IMAGE=eclipse-temurin:17-jdk

FROM ${BASE_IMAGE} AS runtime
# pip is not needed any more. The user has a name because Hadoop looks it up.
RUN rm -rf /usr/local/lib/python3*/site-packages/pip* /usr/local/bin/pip* \
    && echo 'hifi:x:10001:10001:hifi:/tmp:/usr/sbin/nologin' >>/etc/passwd \
    && echo 'hifi:x:10001:' >>/etc/group
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1

FROM ${JDK_IMAGE} AS jre
# The same bytes each time: without the plugin that writes sets in the order of a random number, and without a class archive,
# which holds addresses of memory.
RUN "$JAVA_HOME/bin/jlink" --output /opt/java/jre --compress=2 --no-header-files --no-man-pages \
    --disable-plugin system-modules --strip-java-debug-attributes --add-modules java.base,java.compiler,java.desktop,java.instrument,java.logging,java.management,java.naming,java.net.http,java.prefs,java.rmi,java.scripting,java.security.jgss,java.security.sasl,java.sql,java.transaction.xa,java.xml,java.xml.crypto,jdk.charsets,jdk.crypto.ec,jdk.incubator.vector,jdk.management,jdk.management.agent,jdk.net,jdk.nio.mapmode,jdk.security.auth,jdk.security.jgss,jdk.unsupported,jdk.zipfs

FROM runtime AS java
COPY --from=jre /opt/java/jre /opt/java/jre
ENV JAVA_HOME=/opt/java/jre

FROM ${BASE_IMAGE} AS jars
# For networks with a package mirror or a proxy of their own.
ARG PIP_INDEX_URL
ARG PIP_CERT
ARG REQUESTS_CA_BUNDLE
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
COPY requirements/infra.lock /build/
RUN pip install --quiet --only-binary :all: --require-hashes -r /build/infra.lock
COPY libs/hifi/__init__.py /build/hifi/
COPY libs/hifi/runtime/__init__.py libs/hifi/runtime/errors.py /build/hifi/runtime/
COPY libs/hifi/spark/__init__.py libs/hifi/spark/jars.py libs/hifi/spark/jars.lock /build/hifi/spark/
COPY infra/hifi_infra/__init__.py /build/hifi_infra/
COPY infra/hifi_infra/java/__init__.py infra/hifi_infra/java/jars.py /build/hifi_infra/java/
COPY infra/docker/copy_jars.py /build/
RUN cd /build && HIFI_JARS=/build/locked python copy_jars.py /jars && rm -rf /build/locked

# The Python of BASE_IMAGE with a C compiler. Without a compiler nothing is compiled.
FROM ${COMPILER_IMAGE} AS parts
ARG PIP_INDEX_URL
ARG PIP_CERT
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
COPY requirements/build.lock /build/requirements/
RUN pip install --quiet --only-binary :all: --require-hashes -r /build/requirements/build.lock
COPY requirements/*.lock /build/requirements/
COPY infra/docker/image_parts.py infra/docker/trim.py /build/infra/docker/
COPY infra/docker/spark/unused /build/infra/docker/spark/
RUN python /build/infra/docker/image_parts.py packages
COPY pyproject.toml /build/
COPY libs /build/libs
COPY infra/pyproject.toml /build/infra/
COPY infra/hifi_infra /build/infra/hifi_infra
COPY cli /build/cli
COPY connectors /build/connectors
COPY services /build/services
RUN python /build/infra/docker/image_parts.py code

FROM runtime AS services
COPY --from=parts /images/libs/packages /
COPY infra/docker/ready.py /opt/hifi/
ENV HIFI_HOST=0.0.0.0 HIFI_PORT=9000 HIFI_LOG_FORMAT=json \
    PATH=/opt/hifi/bin:/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin

FROM java AS spark
COPY --from=parts /images/libs/packages /
COPY --from=parts /images/spark/packages /
COPY --from=jars /jars/spark /opt/hifi/jars
COPY infra/docker/ready.py infra/docker/spark/cluster.py /opt/hifi/
ENV HIFI_HOST=0.0.0.0 HIFI_PORT=9000 HIFI_LOG_FORMAT=json HIFI_JARS=/opt/hifi/jars \
    PATH=/opt/hifi/bin:/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin
