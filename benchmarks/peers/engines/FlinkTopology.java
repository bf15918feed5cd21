import java.util.Arrays;
import java.util.concurrent.locks.LockSupport;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * The topology of Flink's own benchmark of checkpoint times, on its local mini cluster: numbers ->
 * 1 KiB records -> rebalance -> each five times -> rebalance -> 1 ms per record. Arguments are
 * settings, "name=value". Runs until it is killed.
 */
public class FlinkTopology {
    static final int PARALLELISM = 4;
    static final int PAYLOAD = 1024;
    static final long SLOW_NANOS = 1_000_000;

    public static class WithPayload implements MapFunction<Long, byte[]> {
        public byte[] map(Long number) {
            byte[] record = new byte[PAYLOAD];
            Arrays.fill(record, (byte) (long) number);
            return record;
        }
    }

    public static class FiveTimes implements FlatMapFunction<byte[], byte[]> {
        public void flatMap(byte[] record, Collector<byte[]> out) {
            for (int i = 0; i < 5; i++) {
                out.collect(record);
            }
        }
    }

    public static class Slow implements MapFunction<byte[], byte[]> {
        public byte[] map(byte[] record) {
            LockSupport.parkNanos(SLOW_NANOS);
            return record;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            settings.setString(parts[0], parts[1]);
        }
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.createLocalEnvironment(PARALLELISM, settings);
        environment
                .fromSource(
                        new NumberSequenceSource(0, Long.MAX_VALUE - 1),
                        WatermarkStrategy.noWatermarks(),
                        "numbers")
                .slotSharingGroup("numbers")
                .map(new WithPayload())
                .rebalance()
                .flatMap(new FiveTimes())
                .slotSharingGroup("five times")
                .rebalance()
                .map(new Slow())
                .slotSharingGroup("slow")
                .sinkTo(new DiscardingSink<>());
        environment.execute("peers");
    }
}
