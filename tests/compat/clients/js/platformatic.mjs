// @platformatic/kafka: node platformatic.mjs BOOTSTRAP NAME. A line for each thing learnt; exits 1 at the first error.
import { Admin, Consumer, ProduceAcks, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const [bootstrap, name] = process.argv.slice(2)
const common = { clientId: name, bootstrapBrokers: [bootstrap] }
const RECORDS = 50
const CODECS = ['none', 'gzip', 'snappy', 'lz4']

const admin = new Admin(common)
await admin.createTopics({ topics: [name], partitions: 2, replicas: 1 })
const producer = new Producer({ ...common, serializers: stringSerializers })
for (const compression of CODECS) {
  const messages = Array.from({ length: RECORDS }, (_, i) => ({ topic: name, key: `${i}`, value: compression }))
  await producer.send({ messages, compression, acks: ProduceAcks.ALL })
}
await producer.close()
const consumer = new Consumer({ ...common, groupId: name, deserializers: stringDeserializers })
const stream = await consumer.consume({ topics: [name], mode: 'earliest', autocommit: true })
const seen = Object.fromEntries(CODECS.map(codec => [codec, 0]))
let left = RECORDS * CODECS.length
for await (const { value } of stream) {
  seen[value]++
  if (--left === 0) break
}
console.log('consumed', JSON.stringify(seen))
await consumer.close(true)
console.log('group', (await admin.listGroups()).get(name).state)
await admin.deleteTopics({ topics: [name] })
await admin.close()
